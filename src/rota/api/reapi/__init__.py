"""The front end of builds: the Remote Execution API, version 2. Needs the extra `build`."""
