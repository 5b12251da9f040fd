"""Rules DX2xx about what is called: graph breaks at calls that Dynamo does not trace."""
