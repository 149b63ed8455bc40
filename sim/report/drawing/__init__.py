"""What all pictures share: colours, elements of SVG, and charts with axes by matplotlib."""
