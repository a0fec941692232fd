import assert from "node:assert/strict";
import test from "node:test";
import { about, type About } from "../../place.ts";
import type { RunList } from "../../runs.ts";
import { shortKey, suggestions } from "./suggest.ts";

const list = {
  tags: ["eval/acc", "loss", "nan"],
  runs: [
    { id: "a", v: "1", status: "Running", hparams: { lr: 0.1, "my net": "res net" }, labels: { team: "nlp" } },
    { id: "b", v: "1", status: "Failed", hparams: { lr: 0.01 }, labels: { team: "vision" } },
  ],
} as unknown as RunList;

test("keys that begin so come before those that have it inside", () => {
  assert.deepEqual(suggestions("l", list).slice(0, 3), ["labels.team", "loss", "hparams.lr"]);
  assert.deepEqual(suggestions("", list), []);
  assert.deepEqual(suggestions("team", list), ["labels.team"]);
});

test("operators follow a whole key, values an operator", () => {
  assert.deepEqual(suggestions("status", list), ["status=", "status!=", "status~"]);
  assert.deepEqual(suggestions("loss<1 status=R", list), ["loss<1 status=Running"]);
  assert.deepEqual(suggestions("hparams.lr=", list), ["hparams.lr=0.01", "hparams.lr=0.1"]);
  assert.deepEqual(suggestions("labels.team=nlp,v", list), ["labels.team=nlp,vision"]);
});

test("values of a job are those of the list, and of nothing that is not there", () => {
  const jobs = { tags: [], statuses: { Queuing: 2 }, runs: [{ id: "a", owner: "ann", instance_type: "ecs.gn7i" }, { id: "b", owner: "li ming", tags: ["paper"] }] } as unknown as RunList;
  assert.deepEqual(suggestions("status=Q", jobs), ["status=Queuing"]);
  assert.deepEqual(suggestions("owner=", jobs), ["owner=ann", 'owner="li ming"']);
  assert.deepEqual(suggestions("tags=", jobs), ["tags=paper"]);
  assert.deepEqual(suggestions("duration>1", jobs), ["duration>10m", "duration>1h", "duration>1d"].slice(0, 3));
  assert.deepEqual(suggestions("own", jobs), []); // of a folder's runs
  about.value = { kind: "service" } as About;
  assert.deepEqual(suggestions("own", jobs), ["owner"]);
  assert.deepEqual(suggestions("owner", jobs), ["owner=", "owner!=", "owner~"]);
});

test("names and values with blanks stand in quotes", () => {
  assert.deepEqual(suggestions('hparams."my net"=', list), ['hparams."my net"="res net"']);
});

test("a metric needs its group only if it is called like another key", () => {
  assert.equal(shortKey("metrics.loss"), "loss");
  assert.equal(shortKey("metrics.nan"), "metrics.nan");
  assert.equal(shortKey("hparams.lr"), "hparams.lr");
});
