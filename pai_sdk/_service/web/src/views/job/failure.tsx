// Why a job failed: the cause first, what to do, and the end of its log.
import { useLayoutEffect, useRef } from "preact/hooks";
import { address, linkTo } from "../../address.ts";
import { said } from "../../service_texts.ts";
import { chinese, t } from "../../words.ts";
import type { Failure } from "./wire.ts";

const COLOURS = /\u001b\[[0-9;?]*[A-Za-z]/g;

export function FailureReport({ id, failure }: { id: string; failure: Failure }) {
  const short = (text: string): string => said(text.replaceAll(`${id}-`, "")); // of the names of instances
  const lines = failure.last_lines.join("\n");
  return (
    <section class="failure" aria-labelledby="failure-title">
      <h2 id="failure-title">{short(failure.cause)}</h2>
      {failure.explanation && <p>{short(failure.explanation)}</p>}
      {failure.advice && <p class="advice"><strong>{t("What to do")}</strong> {said(failure.advice)}</p>}
      <p class="job-facts soft">
        {failure.instance && <span>{t("instance {name}", { name: short(failure.instance) })}</span>}
        {failure.exit_code !== null && <span>{t("exit code {n}", { n: failure.exit_code })}</span>}
        <a href={linkTo({ ...address.value, tab: "log", instance: failure.instance ?? "" })}>{t("End of the log")}</a>
      </p>
      {failure.traceback && <Lines title={t("Traceback")} text={failure.traceback} />}
      {lines && !failure.traceback && <Lines title={t("Last lines of the log")} text={lines} />}
      {lines && failure.traceback && (
        <details>
          <summary>{t("Last lines of the log")}</summary>
          <Lines title={t("Last lines of the log")} text={lines} />
        </details>
      )}
    </section>
  );
}

function Lines({ title, text }: { title: string; text: string }) {
  const box = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight; // the last line is the one that says most
  }, [text]);
  return <pre ref={box} class="lines" tabIndex={0} aria-label={title} role="region">{text.replace(COLOURS, "")}</pre>;
}

chinese({
  "What to do": "处理办法",
  "instance {name}": "实例 {name}",
  "exit code {n}": "退出码 {n}",
  "End of the log": "日志末尾",
  "Last lines of the log": "日志的最后几行",
  "Traceback": "调用栈",
  // The advice of the service (pai_sdk/_data/logs/advice.py).
  "≈The memory of the GPU ran out: use a smaller batch, bfloat16 or gradient checkpointing, or an instance type with larger GPUs.": "显存不足：请减小批大小，使用 bfloat16 或梯度检查点，或选择显存更大的实例规格。",
  "≈The memory of the instance ran out: read the data in parts, use a smaller batch or fewer data loaders, or an instance type with more memory.": "实例内存不足：请分批读取数据、减小批大小或数据加载进程数，或选择内存更大的实例规格。",
  "≈Use a smaller batch or a larger instance.": "请减小批大小或使用更大的实例。",
  "≈A disk is full: keep fewer checkpoints, remove temporary files, or free some space on it.": "磁盘已满：请少保留检查点、删除临时文件，或释放空间。",
  "≈The module {1} comes with {2}: add requirements=['{3}'], or a line in requirements.txt.": "模块 {1} 来自 {2}：请添加 requirements=['{3}']，或在 requirements.txt 中加一行。",
  "≈If {1} is a package, add requirements=['{2}'], or a line in requirements.txt; if it is a file of yours, it has to be in source_dir.": "如果 {1} 是软件包，请添加 requirements=['{2}']，或在 requirements.txt 中加一行；如果是你的文件，它必须在 source_dir 中。",
  "≈There is no program {1}: check its spelling, or add the package that provides it to the requirements or the image.": "没有程序 {1}：请检查拼写，或把提供它的软件包加入 requirements 或镜像。",
  "≈A job finds its own files only; its inputs are {1}.": "作业只能看到自己的文件；其输入为 {1}。",
  "≈Some ranks waited too long for another one: look for it in the logs of the other instances; if no rank failed, raise the timeout of init_process_group.": "部分进程等待其他进程过久：请在其他实例的日志中查找它；若没有进程失败，请调大 init_process_group 的 timeout。",
});
