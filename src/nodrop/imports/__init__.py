"""Published data sets, read from their original files into the words of this project."""
