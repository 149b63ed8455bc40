"""The command line: one file a command. It alone knows both the simulator and the calibration."""
