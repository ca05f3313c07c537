"""Where the time goes: functions, waits and threads of the SUT; models of its threads."""
