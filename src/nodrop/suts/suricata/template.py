"""The suricata.yaml that is measured if the user brings none: what a user of Debian runs.

Sizes and switches that decide speed (memcaps, application layers, detection profile) are the
defaults of the packages for Suricata 7 and 8; logging is alerts only.
"""

from __future__ import annotations

from typing import Any

Yaml = dict[str, Any]

MAX_PENDING_PACKETS = 1024

_SERVERS = ("HTTP", "SMTP", "SQL", "DNS", "TELNET", "DC", "DNP3", "MODBUS", "ENIP")
_ON = (
    *("telnet", "rfb", "mqtt", "krb5", "bittorrent-dht", "snmp", "ike", "dcerpc", "ftp", "rdp"),
    *("ssh", "http2", "nfs", "tftp", "ntp", "quic", "dhcp", "sip"),
    *("websocket", "doh2", "pop3", "mdns"),
)
"""Application layers that are on; those that one version does not know, it ignores."""


def template() -> Yaml:
    return {
        "vars": _variables(),
        "outputs": [
            {"fast": {"enabled": False, "filename": "fast.log"}},
            {
                "eve-log": {
                    "enabled": True,
                    "filetype": "regular",
                    "filename": "eve.json",
                    "types": [{"alert": {"tagged-packets": True}}],
                }
            },
        ],
        "app-layer": {"protocols": _protocols()},
        "host-mode": "auto",
        "max-pending-packets": MAX_PENDING_PACKETS,
        "pcre": {"match-limit": 3500, "match-limit-recursion": 1500},
        "host-os-policy": {"windows": ["0.0.0.0/0"]},
        "defrag": {
            "memcap": "32mb",
            "hash-size": 65536,
            "trackers": 65535,
            "max-frags": 65535,
            "prealloc": True,
            "timeout": 60,
        },
        "flow": {
            "memcap": "128mb",
            "hash-size": 65536,
            "prealloc": 10000,
            "emergency-recovery": 30,
        },
        "vlan": {"use-for-tracking": True},
        "stream": {
            "memcap": "64mb",
            "checksum-validation": True,
            "inline": "auto",
            "reassembly": {
                "memcap": "256mb",
                "depth": "1mb",
                "toserver-chunk-size": 2560,
                "toclient-chunk-size": 2560,
                "randomize-chunk-size": True,
            },
        },
        "host": {"hash-size": 4096, "prealloc": 1000, "memcap": "32mb"},
        "decoder": {
            "teredo": {"enabled": True, "ports": "$TEREDO_PORTS"},
            "vxlan": {"enabled": True, "ports": "$VXLAN_PORTS"},
            "geneve": {"enabled": True, "ports": "$GENEVE_PORTS"},
        },
        "detect": {
            "profile": "medium",
            "sgh-mpm-context": "auto",
            "prefilter": {"default": "mpm"},
        },
        "mpm-algo": "auto",
        "spm-algo": "auto",
        "threading": {"set-cpu-affinity": False, "detect-thread-ratio": 1.0},
    }


def _variables() -> Yaml:
    home = "$HOME_NET"
    return {
        "address-groups": {
            "HOME_NET": "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]",
            "EXTERNAL_NET": "!$HOME_NET",
            **{f"{name}_SERVERS": home for name in _SERVERS},
            "AIM_SERVERS": "$EXTERNAL_NET",
            **{f"{name}_{end}": home for name in _SERVERS[-3:] for end in ("SERVER", "CLIENT")},
        },
        "port-groups": {
            "HTTP_PORTS": "80",
            "SHELLCODE_PORTS": "!80",
            "ORACLE_PORTS": 1521,
            "SSH_PORTS": 22,
            "DNP3_PORTS": 20000,
            "MODBUS_PORTS": 502,
            "FILE_DATA_PORTS": "[$HTTP_PORTS,110,143]",
            "FTP_PORTS": 21,
            "GENEVE_PORTS": 6081,
            "VXLAN_PORTS": 4789,
            "TEREDO_PORTS": 3544,
            "SIP_PORTS": "[5060, 5061]",
        },
    }


def _protocols() -> Yaml:
    return {
        **{name: {"enabled": True} for name in _ON},
        "tls": {"enabled": True, "detection-ports": {"dp": 443}},
        "smb": {"enabled": True, "detection-ports": {"dp": "139, 445"}},
        "imap": {"enabled": "detection-only"},
        "dns": {side: {"enabled": True, "detection-ports": {"dp": 53}} for side in ("tcp", "udp")},
        "ldap": {
            side: {"enabled": True, "detection-ports": {"dp": "389, 3268"}}
            for side in ("tcp", "udp")
        },
        "smtp": {
            "enabled": True,
            "raw-extraction": False,
            "mime": {
                "decode-mime": True,
                "decode-base64": True,
                "decode-quoted-printable": True,
                "header-value-depth": 2000,
                "extract-urls": True,
                "body-md5": False,
            },
            "inspected-tracker": {
                "content-limit": 100000,
                "content-inspect-min-size": 32768,
                "content-inspect-window": 4096,
            },
        },
        "http": {
            "enabled": True,
            "libhtp": {
                "default-config": {
                    "personality": "IDS",
                    "request-body-limit": "100kb",
                    "response-body-limit": "100kb",
                    "request-body-minimal-inspect-size": "32kb",
                    "request-body-inspect-window": "4kb",
                    "response-body-minimal-inspect-size": "40kb",
                    "response-body-inspect-window": "16kb",
                    "response-body-decompress-layer-limit": 2,
                    "http-body-inline": "auto",
                }
            },
        },
        **{name: {"enabled": False} for name in ("modbus", "dnp3", "enip", "pgsql")},
    }
