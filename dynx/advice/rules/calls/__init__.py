"""Rules DX2xx: graph breaks at calls that Dynamo does not trace."""
