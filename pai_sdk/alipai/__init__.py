"""Names for code that was written for alipai or other SDKs. Classes of higher packages inherit them."""
