"""The PAI-style service: the same wire as Alibaba Cloud PAI, on a machine of your own."""
