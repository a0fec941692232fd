import assert from "node:assert/strict";
import test from "node:test";
import { pattern, refusalText, said, statusText } from "./service_texts.ts";
import { language } from "./words.ts";

test("a sentence is found with what stands in its places", () => {
  const found = pattern("Instance {1} is {2} (exit code {3}).").exec("Instance a-master-0 is Failed (exit code 137).");
  assert.deepEqual(found?.slice(1), ["a-master-0", "Failed", "137"]);
  assert.equal(pattern("Instance {1} is {2}.").exec("The job is running."), null);
});

test("sentences and statuses are Chinese when the page is, the others stay as they are", () => {
  language.value = "zh";
  assert.equal(said("Instance a-master-0 is Running."), "实例 a-master-0：运行中。");
  assert.equal(said("Attempt 1 begins in 5 s."), "第 1 次尝试将在 5 秒后开始。");
  assert.equal(said("Instance a ended with exit code 3. The kernel has killed processes meanwhile because memory ran out."), "实例 a 以退出码 3 结束。 其间内核因内存不足终止了进程。");
  assert.equal(said("Attempt 1 has failed (NonZeroExit): Instance a ended with exit code 3."), "第 1 次尝试失败（NonZeroExit）：实例 a 以退出码 3 结束。");
  assert.equal(said("Instance a ran out of memory: it reached its limit of 2 GiB and was killed (exit code 137)."), "实例 a 内存不足：达到上限 2 GiB 后被终止（退出码 137）。");
  assert.equal(said("The job succeeded. Something else."), "作业成功。 Something else.");
  assert.equal(said("Something else (5 of 3)."), "Something else (5 of 3).");
  assert.equal(said("The job was created and waits in the queue, behind 12 others of user 'bob'."), "作业已创建，正在排队，前面有用户 'bob' 的 12 个作业。");
  assert.equal(said("The job waits behind 2 jobs of the same user."), "作业排在同一用户的 2 个作业之后。");
  assert.equal(said("The job is next to start; it is waiting for 1 instance (0 of 8 are free), 2 CPUs (0 of 8 are free)."), "作业是下一个启动的；正在等待 1 个实例（8 中空闲 0）、2 CPUs（8 中空闲 0）。");
  assert.equal(statusText("Queuing"), "排队中");
  assert.equal(statusText("Created"), "已创建");
  assert.equal(said("service on trainer"), "trainer 上的服务");
  assert.equal(refusalText("Forbidden.NoPermission", "User x may not."), "你的权限不允许此操作。");
  assert.equal(refusalText("InvalidFilter", "A filter has no value."), "A filter has no value.");
  language.value = "en";
  assert.equal(said("The job is running."), "The job is running.");
  assert.equal(refusalText("Forbidden.NoPermission", "User x may not."), "User x may not.");
});
