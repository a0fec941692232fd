"""Names for code that was written for alipai. Classes of higher packages inherit them."""
