-- What experiments/snort-2016.toml gives to Snort 3: its defaults, without rules. For yours:
--   ips = { variables = default_variables, include = 'my.rules' }
stream = { }
stream_tcp = { }
stream_udp = { }
