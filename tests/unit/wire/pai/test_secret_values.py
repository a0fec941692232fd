"""Values that must not be seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk import Secret
from pai_sdk._wire.pai.record import NameValue
from pai_sdk._wire.pai.secret_values import (
    is_secret_name,
    mask_value,
    masked,
    masked_arguments,
    masked_command,
    masked_spec,
    with_secrets,
)
from pai_sdk._wire.pai.spec import HyperParameter
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


@pytest.mark.parametrize(
    "name",
    [
        *("password", "DB_PASSWORD", "dbPassword", "redis-passwd", "HF_TOKEN", "token", "WANDB_API_KEY", "apikey"),
        *("accessKeySecret", "client_secret", "OSS_CREDENTIALS", "key", "api.key", "PASSPHRASE"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name, "hf_abc")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_token", 512), ("num_tokens", 512), ("tokenizer", "bert"), ("pad_token", "<pad>"), ("key", "0.5")),
        *(("keyword", "x"), ("monkey", "x"), ("key_dim", "64"), ("use_token", "true"), ("sort_key", "name")),
    ],
)
def test_hyperparameters_of_models_are_no_secrets(name: str, value: object) -> None:
    assert not is_secret_name(name, value)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python a.py --password hunter2 --lr 1", "python a.py --password ****** --lr 1"),
        ("python a.py --password='hunter 2'", "python a.py --password=******"),
        ("export HF_TOKEN=hunter2; run", "export HF_TOKEN=******; run"),
        ("python a.py --token $HF_TOKEN", "python a.py --token $HF_TOKEN"),
        ('python a.py --token "$HF_TOKEN"', 'python a.py --token "$HF_TOKEN"'),
        ("echo the password is forgotten", "echo the password is forgotten"),
        ("python a.py --max-token 512", "python a.py --max-token 512"),
        ("python a.py $PAI_USER_ARGS", "python a.py $PAI_USER_ARGS"),
    ],
)
def test_commands(command: str, shown: str) -> None:
    assert masked_command(command) == shown


@given(st.text())
def test_no_command_breaks_the_search(text: str) -> None:
    masked_command(text)
    is_secret_name(text, text)


def test_hyperparameters_hide_secrets_in_their_reprs() -> None:
    for model in (HyperParameter(name="api_key", value="hunter2"), NameValue(name="api_key", value="hunter2")):
        assert "hunter2" not in repr(model) + str(model)
        assert model.value == "hunter2"
    assert "0.1" in repr(HyperParameter(name="lr", value="0.1"))


def test_a_secret_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"A": "1", "TOKEN": Secret("MY_TOKEN").placeholder}
    with refused(InvalidInputError, "environments['TOKEN']") as caught:
        with_secrets(values)
    assert len(caught.value.problems) == 1
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    assert with_secrets(values) == {"A": "1", "TOKEN": "hunter2"}
    assert Secret.from_env("MY_TOKEN") == Secret("MY_TOKEN")
    assert repr(Secret("MY_TOKEN")) == "Secret('MY_TOKEN')"


def test_a_value_given_in_place_of_a_name_is_refused_and_not_shown() -> None:
    with refused(InvalidInputError, "Secret") as caught:
        Secret("sk-hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"db": {"password": "x", "port": 1}}, {"db": {"password": "******", "port": 1}}),
        ([{"api_key": "x"}, 2], [{"api_key": "******"}, 2]),
        ({"credentials": {"user": "me", "id": "x"}}, {"credentials": "******"}),
        ({"text": '{"password": "x"}'}, {"text": '{"password": "******"}'}),
        (' [{"a": {"hf_token": "x"}}]', '[{"a": {"hf_token": "******"}}]'),
    ],
)
def test_secrets_within_values(value: object, shown: object) -> None:
    assert mask_value("settings", value) == shown


@pytest.mark.parametrize(
    "value", [{"lr": 0.1, "betas": [0.9, 0.99]}, '{"lr":  0.1}', "{no json", "[" * 5000, None, True, "", {}]
)
def test_a_value_without_secrets_stays_itself(value: object) -> None:
    assert mask_value("settings", value) is value


@given(st.text(alphabet='{}[]":, ab1password'))
def test_texts_that_are_nearly_json(text: str) -> None:
    assert isinstance(masked("settings", text), str)


def test_values_without_secrets_are_sent_as_they_are() -> None:
    assert with_secrets({"A": "1"}) == {"A": "1"}


def test_numbers_are_secret_only_under_some_names() -> None:
    names = ("WANDB_API_KEY", "accessKeySecret")
    assert all(map(is_secret_name, names))
    assert not is_secret_name("max_token", 512)


def test_values_are_masked_by_their_names_at_any_depth() -> None:
    assert masked("lr", "0.1") == "0.1"
    assert masked("db_password", "hunter2") == "******"
    assert masked("db", '{"password": "hunter2"}') == '{"password": "******"}'
    assert mask_value("db", [{"password": "hunter2", "port": 80}]) == [{"password": "******", "port": 80}]


def test_secrets_of_a_command_are_masked() -> None:
    command = "HF_TOKEN=hf_abc python train.py --lr 0.1 --api-key abc"
    expected = "HF_TOKEN=****** python train.py --lr 0.1 --api-key ******"
    assert masked_command(command) == expected
    assert masked_spec({"Command": ["sh", "-c", command]}) == {"Command": ["sh", "-c", expected]}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["train", "--api-key", "hunter2", "--lr", "0.1"], ["train", "--api-key", "******", "--lr", "0.1"]),
        (["train", "--api-key=hunter2"], ["train", "--api-key=******"]),
        (["sh", "-c", "train --api-key hunter2"], ["sh", "-c", "train --api-key ******"]),
        (
            ["train", "--token", "$TOKEN", "--password", "--fast"],
            ["train", "--token", "$TOKEN", "--password", "--fast"],
        ),
        (["train", "--max-tokens", "7", 3, None], ["train", "--max-tokens", "7", 3, None]),
    ],
)
def test_a_value_that_is_a_word_of_its_own_is_masked(words: list[object], shown: list[object]) -> None:
    assert masked_arguments(words) == shown
