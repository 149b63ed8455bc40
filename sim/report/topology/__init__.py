"""The cluster's topology as a picture and as a table."""
