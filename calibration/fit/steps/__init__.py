"""The few constants that only step times show, fitted over measured cases: ``stepsim calibrate steps``."""
