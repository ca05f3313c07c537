"""Input from outside: folders, files and lines that anybody may have written."""
