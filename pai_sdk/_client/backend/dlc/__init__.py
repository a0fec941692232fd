"""Backend for jobs of DLC: Alibaba Cloud's API of version 2020-12-03, and services of this package."""
