"""The client of Alibaba Cloud OSS and of services that speak its protocol."""
