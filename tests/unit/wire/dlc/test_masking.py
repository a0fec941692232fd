"""No secret of a body is displayed."""

from __future__ import annotations

import json

from pai_sdk._wire.dlc.masking import public_body

BODY = {
    "DisplayName": "n",
    "UserCommand": "python train.py --token hush --lr 0.1",
    "Envs": {"A": "hush"},
    "CustomEnvs": [{"Key": "B", "Value": "hush", "Visible": "private"}],
    "ThirdpartyLibs": ["--index-url https://me:hush@host.example/"],
    "JobSpecs": [
        {
            "Type": "Worker",
            "UserCommand": "WANDB_API_KEY=hush python x.py",
            "ImageConfig": {"Username": "me", "Password": "hush", "Auth": "hush"},
            "ExtraPodSpec": {
                "SideCarContainers": [
                    {"Env": [{"Name": "A", "Value": "hush"}], "Command": ["run", "--password=hush"], "Args": ["x"]}
                ]
            },
        }
    ],
    "CredentialConfig": {
        "CredentialConfigItems": [
            {"Roles": [{"AssumeUserInfo": {"AccessKeyId": "hush", "SecurityToken": "hush"}}]}
        ]
    },
    "Settings": {"AdvancedSettings": {"RayRuntimeEnv": '{"env_vars": {"API_KEY": "hush"}}'}, "Tags": {"t": "v"}},
}


def test_secrets_are_masked_at_any_depth() -> None:
    public = public_body(BODY)
    text = json.dumps(public)
    assert "hush" not in text
    assert public["DisplayName"] == "n"
    assert public["UserCommand"].endswith("--lr 0.1")
    assert public["JobSpecs"][0]["ImageConfig"]["Username"] == "me"
    assert public["Settings"]["Tags"] == {"t": "v"}
    assert public["CustomEnvs"][0]["Visible"] == "private"


def test_the_body_stays_as_it_was() -> None:
    before = json.dumps(BODY)
    public_body(BODY)
    assert json.dumps(BODY) == before


def test_jobs_in_templates_are_masked() -> None:
    public = public_body({"TemplateName": "t", "Content": json.dumps(BODY)})
    assert "hush" not in public["Content"]
    assert json.loads(public["Content"])["DisplayName"] == "n"
    assert public_body({"Content": "no JSON"}) == {"Content": "no JSON"}


def test_links_and_tokens_are_masked() -> None:
    assert "hush" not in json.dumps(
        public_body({"Token": "hush", "WebTerminalUrl": "wss://hush", "token": "hush"})
    )
    assert "hush" not in json.dumps(public_body({"RoleSystemEnvs": {"Worker": {"A": "hush"}}}))
