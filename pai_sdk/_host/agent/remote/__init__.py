"""The part of pai_sdk on a host of a cluster that has neither the service nor its disk."""
