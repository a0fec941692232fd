// The sentences of the service in Chinese: what happened to a job, and why a request is refused.
//
// The service writes English. A key that begins with `≈` is such a sentence, where `{1}` stands for any text, and `…` at the end for
// the rest; one that begins with `!` is the code of a refusal. Sentences without a translation stay English.
import { chinese, language, t, translated } from "./words.ts";

const SENTENCE = "≈";
let patterns: readonly (readonly [RegExp, string])[] = [];
let madeOf = 0;
const cache = new Map<string, string>(); // lists have a thousand causes
const MOST_CACHED = 10_000;

/** A sentence of the service in the language of the page; several that follow each other are translated one by one. */
export function said(text: string): string {
  if (language.value === "en" || !text) return text;
  const all = translated();
  if (madeOf !== all.size || cache.size > MOST_CACHED) {
    cache.clear();
    madeOf = all.size;
    patterns = [...all].filter(([key]) => key.startsWith(SENTENCE)).map(([key, text]) => [pattern(key.slice(1)), text] as const);
  }
  const known = cache.get(text) ?? whole(text) ?? text.split(/(?<=[.。]) /).map((part) => whole(part) ?? part).join(" ");
  cache.set(text, known);
  return known;
}

/** Why a request was refused, in the language of the page: by its code, else by its sentence. */
export function refusalText(code: string, message: string): string {
  const known = language.value === "en" ? "!" : t(`!${code}`);
  return known.startsWith("!") ? said(message) : known;
}

/** The status of a job, a step or an instance; `=` stands before one that is a heading with another Chinese, too. */
export function statusText(status: string): string {
  const own = t(`=${status}`);
  return own.startsWith("=") ? t(status) : own;
}

function whole(text: string): string | undefined {
  for (const [expression, template] of patterns) {
    const found = expression.exec(text);
    if (found) return template.replace(/\{(\d)\}/g, (_, number: string) => part(found[Number(number)] ?? ""));
  }
  return undefined;
}

/** What stands at a place of a sentence: a list of resources that are missing, a word, or a name. */
function part(text: string): string {
  const [, number, noun] = /^(\d+) (running job|job|instance)s?$/.exec(text) ?? [];
  if (noun) return `${number} ${t(`=${noun}`)}`;
  return text.endsWith(" are free)") ? text.split(", ").map((one) => whole(one) ?? one).join("、") : (whole(text) ?? statusText(text));
}

/** A sentence with places, which have no end of a sentence in them, as a regular expression. */
export function pattern(sentence: string): RegExp {
  return new RegExp(`^${sentence.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{\d\}/g, "((?:(?!\\. ).)*?)").replace(/…$/, ".*")}$`);
}

chinese({
  "Creating": "创建中",
  "=Created": "已创建",
  "Submitted": "已提交",
  "Queuing": "排队中",
  "Initializing": "初始化中",
  "Running": "运行中",
  "Succeed": "成功",
  "Failed": "失败",
  "CreateFailed": "创建失败",
  "InitializeFailed": "初始化失败",
  "Terminated": "已停止",
  "Terminating": "停止中",
  "Unknown": "未知",
  "Pending": "等待中",
  "Succeeded": "成功",
  "Stopped": "已停止",
  "running": "运行中",
  "succeeded": "成功",
  "cached": "命中缓存",
  "failed": "失败",
  "stopped": "已停止",
  "blocked": "被阻塞",
  "interrupted": "已中断",
  "waiting": "等待中",
  "≈embedded service on {1}": "{1} 上的嵌入式服务",
  "≈service on {1}": "{1} 上的服务",
  "≈The job was created and waits in the queue.": "作业已创建，正在排队。",
  "≈The job was created and waits in the queue{1}.": "作业已创建，正在排队{1}。",
  "≈, behind more than {1} others of user {2}": "，前面有用户 {2} 的 {1} 个以上作业",
  "≈, behind more than {1} others": "，前面有 {1} 个以上作业",
  "≈, behind {1} other of user {2}": "，前面有用户 {2} 的 {1} 个作业",
  "≈, behind {1} others of user {2}": "，前面有用户 {2} 的 {1} 个作业",
  "≈, behind {1} other": "，前面有 {1} 个作业",
  "≈, behind {1} others": "，前面有 {1} 个作业",
  "≈Preparing the job's code and inputs.": "正在准备作业的代码和输入。",
  "≈The job is running.": "作业正在运行。",
  "≈The job succeeded.": "作业成功。",
  "≈The job was stopped.": "作业已停止。",
  "≈The job was stopped by a user.": "作业已被用户停止。",
  "≈A stop was requested.": "已请求停止。",
  "≈Attempt {1} has failed ({2}): {3}": "第 {1} 次尝试失败（{2}）：{3}",
  "≈Attempt {1} begins in {2} s.": "第 {1} 次尝试将在 {2} 秒后开始。",
  "≈The code is cloned into {1}.": "代码已克隆到 {1}。",
  "≈Jobs run as processes, not in containers: the image {1} is not used, and its packages and programs are not there.": "作业以进程运行，而不在容器中：不使用镜像 {1}，其中的软件包和程序不可用。",
  "≈Name packages in requirements, or serve with `pai-sdk serve --executor docker`.": "请在 requirements 中写明软件包，或用 `pai-sdk serve --executor docker` 启动服务。",
  "≈Some outputs are not saved yet: {1}": "部分输出尚未保存：{1}",
  "≈The job waits for the quota of user {1}: {2}.": "作业在等待用户 {1} 的配额：{2}。",
  "≈The job needs more than the quota of user {1} allows: {2}.": "作业需要的资源超出用户 {1} 的配额：{2}。",
  "≈The job is next to start; it is waiting for {1}.": "作业是下一个启动的；正在等待 {1}。",
  "≈It and the user's other jobs wait until it is stopped, or the quota is raised.": "在停止此作业或提高配额之前，它和该用户的其他作业都会等待。",
  "≈{1} ({2} of the cluster's {3} are free)": "{1}（集群的 {3} 中空闲 {2}）",
  "≈{1} ({2} of {3} are free)": "{1}（{3} 中空闲 {2}）",
  "=running job": "个运行中的作业",
  "=job": "个作业",
  "=instance": "个实例",
  "≈The job waits behind {1} of the same user.": "作业排在同一用户的 {1}之后。",
  "≈The next attempt starts at {1}.": "下一次尝试将于 {1} 开始。",
  "≈The job is about to start.": "作业即将启动。",
  "≈The job waits for its turn: the user with the smallest share of the service is next.": "作业在等待轮到它：占用份额最小的用户优先。",
  "≈Instance {1} ended with exit code 127: a program…": "实例 {1} 以退出码 127 结束：找不到命令中的程序；日志的最后几行有其名称。",
  "≈Instance {1} ended with exit code 126: a program…": "实例 {1} 以退出码 126 结束：命令中的程序不可执行。",
  "≈Instance {1} ended with exit code {2}, and the disk of {3} is full.": "实例 {1} 以退出码 {2} 结束，{3} 所在的磁盘已满。",
  "≈Instance {1} ended with exit code {2}, and the disk that…": "实例 {1} 以退出码 {2} 结束，其输出和日志所在的磁盘已满。",
  "≈Instance {1} ended with exit code {2}, and its log says: {3}.": "实例 {1} 以退出码 {2} 结束，其日志写道：{3}。",
  "≈Instance {1} ended with exit code {2}.": "实例 {1} 以退出码 {2} 结束。",
  "≈Instance {1} was ended by signal {2} (exit code {3}).": "实例 {1} 被信号 {2} 结束（退出码 {3}）。",
  "≈Instance {1} was killed (exit code 137, SIGKILL), most…": "实例 {1} 被终止（退出码 137，SIGKILL），很可能是内存不足。",
  "≈Instance {1} ran out of memory: it reached its limit{2} and was killed (exit code {3}).": "实例 {1} 内存不足：达到上限{2}后被终止（退出码 {3}）。",
  "≈The job was stopped: it reached its limit of {1} seconds.": "作业已停止：达到 {1} 秒的时限。",
  "≈Instance {1} was killed by signal {2} (exit code {3}).": "实例 {1} 被信号 {2} 终止（退出码 {3}）。",
  "≈It was not killed because memory ran out.": "原因不是内存不足。",
  "≈The kernel has killed…": "其间内核因内存不足终止了进程。",
  "≈ of {1}": " {1} ",
  "≈The Python requirements could not be installed: {1}.": "无法安装 Python requirements：{1}。",
  "≈pip ended with exit code {1}": "pip 以退出码 {1} 结束",
  "≈pip's output is in…": "pip 的输出在第一个实例的日志中。",
  "≈The process that supervised…": "监管此作业的进程被终止或机器停机，因此作业未完成。",
  "≈The processes of this job were on {1}, and…": "此作业的进程在 {1} 上，而服务已迁移到另一台无法访问它们的机器。",
  "≈The process that had instance {1} on node {2} was killed.": "节点 {2} 上实例 {1} 的进程被终止。",
  "≈Instance {1} was lost with its node {2}:…": "实例 {1} 随节点 {2} 丢失：集群已无法访问该节点。",
  // The first text that fits is used, and these fit many.
  "≈Instance {1} is {2} (exit code {3}).": "实例 {1}：{2}（退出码 {3}）。",
  "≈Instance {1} is {2}.": "实例 {1}：{2}。",
  "≈The job was ended; log lines…": "作业已结束；尚未到达的日志行和文件已丢失。",
  "≈The access key expired at {1}; ask an administrator for a new one (pai-sdk service user key).": "访问密钥已于 {1} 到期；请向管理员索取新密钥（pai-sdk service user key）。",
  "!Forbidden.NoPermission": "你的权限不允许此操作。",
  "!NotForPages": "已登录的浏览器不能执行此操作；需要用访问密钥签名的请求。",
  "!RUN_NOT_FOUND": "没有这个运行。",
  "!TRAINING_JOB_NOT_FOUND": "没有这个作业。",
  "!RUN_FILE_NOT_FOUND": "此运行没有这个文件。",
  "!RUN_LOG_NOT_FOUND": "此运行没有日志。",
  "!VIEW_NOT_FOUND": "没有这个视图。",
  "!TicketNotValid": "该地址已使用或已过期；请重新下载。",
  "!ServiceBusy": "服务繁忙；请稍后再试。",
  "!CodeNotValid": "该链接已使用或已过期。",
});
