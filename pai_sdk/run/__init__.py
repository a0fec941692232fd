"""What a training leaves behind: a folder with a URI."""
