#!/usr/bin/env bash
# apprise 2.2.0 calls messages delivered that DingTalk, Feishu, Lark and WeCom have refused, and counts WeCom's limit
# in characters.
#
# These robots answer HTTP 200 to refusals, too: the reason is `errcode` or `code` of the body, such as 310000 of
# DingTalk for a wrong signature or a missing keyword, or 45009 of WeCom for too many messages. The script lets the
# plugins post to a server of its own, which refuses everything in this way.
# Behaviour: `notify` is true for each of them, and `retry=3` of the URL sends nothing again. With `overflow=split`,
#   parts for WeCom have up to 2,048 characters, which are 6,144 bytes of Chinese text; its limit is 2,048 bytes.
#   Without, the text is not split at all.
# Expected: false, as for Slack, whose webhooks say `ok`; parts of at most 2,048 bytes.
# Sources: apprise/plugins/dingtalk.py, feishu.py, lark.py, wecombot.py, which look at the status only;
#   https://developer.work.weixin.qq.com/document/path/91770 for WeCom's limit.
#
# Output:
#   DingTalk: refused, notify: True, requests: 1
#   Feishu: refused, notify: True, requests: 1
#   Lark: refused, notify: True, requests: 1
#   WeCom: refused, notify: True, requests: 1
#   Slack: refused, notify: False, requests: 4
#   WeCom, 3,000 Chinese characters: parts of [6144, 2856] bytes
# Exit status: 0 while apprise behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check apprise==2.2.0
cat > "$folder/show.py" <<'PYTHON'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from apprise import Apprise
from apprise.plugins.dingtalk import NotifyDingTalk
from apprise.plugins.feishu import NotifyFeishu
from apprise.plugins.lark import NotifyLark
from apprise.plugins.slack import NotifySlack
from apprise.plugins.wecombot import NotifyWeComBot

REFUSAL = json.dumps({"errcode": 310000, "errmsg": "sign not match", "code": 19021, "msg": "sign match fail"}).encode()
TOKEN = "00000000-0000-0000-0000-000000000000"
TARGETS = [
    ("DingTalk", NotifyDingTalk, "notify_url", f"dingtalk://{TOKEN.replace('-', '')}/"),
    ("Feishu", NotifyFeishu, "notify_url", f"feishu://{TOKEN}/"),
    ("Lark", NotifyLark, "notify_url", f"lark://{TOKEN}/"),
    ("WeCom", NotifyWeComBot, "notify_url", f"wecombot://{TOKEN}/"),
    ("Slack", NotifySlack, "webhook_url", "slack://T00000000/A00000000/000000000000000000000000/"),
]
bodies = []


class Robot(BaseHTTPRequestHandler):
    def do_POST(self):
        bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", str(len(REFUSAL)))
        self.end_headers()
        self.wfile.write(REFUSAL)

    def log_message(self, *arguments):
        pass


def notify(url, body):
    bodies.clear()
    target = Apprise()
    assert target.add(url)
    return bool(target.notify(body=body))


server = ThreadingHTTPServer(("127.0.0.1", 0), Robot)
threading.Thread(target=server.serve_forever, daemon=True).start()
seen = {}
for name, plugin, attribute, url in TARGETS:
    path = getattr(plugin, attribute).split("/", 3)[3]
    setattr(plugin, attribute, f"http://127.0.0.1:{server.server_port}/{path}")
    plugin.request_rate_per_sec = 0
    seen[name] = (notify(f"{url}?retry=3&wait=0", "the job has failed"), len(bodies))
    print(f"{name}: refused, notify: {seen[name][0]}, requests: {seen[name][1]}")
notify(f"wecombot://{TOKEN}/?overflow=split", "训" * 3000)
parts = [len(body["text"]["content"].encode()) for body in bodies]
print(f"WeCom, 3,000 Chinese characters: parts of {parts} bytes")
robots = {name: answer for name, answer in seen.items() if name != "Slack"}
is_so = all(answer == (True, 1) for answer in robots.values()) and not seen["Slack"][0] and max(parts) > 2048
sys.exit(not is_so)
PYTHON
timeout 60 "$folder/venv/bin/python" "$folder/show.py" 2> "$folder/log" || { cat "$folder/log" >&2; exit 1; }
