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
  // The advice of the service (pai_sdk/_data/logs and pai_sdk/_core/reasons.py).
  "hyperparameter": "超参数",
  "input": "输入",
  "output": "输出",
  "≈The memory of the GPU ran out…": "显存不足：请减小批大小，使用 bfloat16 或梯度检查点，或选择显存更大的实例规格。",
  "≈The shared memory of the instance ran out…": "实例共享内存不足：请减少数据加载进程数，或调大 instance_spec.shared_memory。",
  "≈The memory of the instance ran out…": "实例内存不足：请分批读取数据、减小批大小或数据加载进程数，或选择内存更大的实例规格。",
  "≈A disk is full…": "磁盘已满：请少保留检查点、删除临时文件，或释放空间。",
  "≈An index is out…": "GPU 上的索引越界，常见于标签不小于类别数：environments={'CUDA_LAUNCH_BLOCKING': '1'} 使调用栈指出所在行。",
  "≈The framework…": "镜像中的框架不支持此 GPU：请使用支持它的版本的镜像。",
  "≈The program found…": "程序找不到可用的 GPU：请选择带 GPU 的实例规格，以及含 CUDA 和相应框架的镜像。",
  "≈The image has no {1}: use…": "镜像中没有 {1}：请使用含有它的镜像，或安装其系统软件包。",
  "≈A package was built…": "软件包是为另一版本的 NumPy 构建的：请添加 requirements=['numpy<2']，或使用该软件包的新版本。",
  "≈Some ranks waited…": "部分进程等待其他进程过久：请在其他实例的日志中查找它；若没有进程失败，请调大 init_process_group 的 timeout。",
  "≈The GPUs lost…": "GPU 之间的连接中断：请在其他实例的日志中查找最先失败的进程；environments={'NCCL_DEBUG': 'INFO'} 使日志更详细。",
  "≈Another process…": "端口已被其他进程占用：请换一个，例如 torchrun 的 --rdzv-endpoint=localhost:0。",
  "≈The script has…": "脚本使用 Windows 换行符（CRLF）：请用 LF 保存。",
  "≈There is no program {1}: check…": "没有程序 {1}：请检查拼写，或把提供它的软件包加入 requirements 或镜像。",
  "≈The file {1} is not executable…": "文件 {1} 不可执行：请用解释器启动它（python train.py、sh run.sh），或设置其 x 权限位。",
  "≈The job may not…": "作业不能写入该位置：请把结果写到 $PAI_OUTPUT_MODEL 或其他输出，把临时文件写到 /tmp。",
  "≈The file is not in…": "该文件不在作业的代码中：命令在 source_dir 中运行，请使用相对于它的路径。",
  "≈The image cannot…": "无法拉取镜像：请检查名称和标签，以及实例能否访问其镜像仓库（私有镜像需要其 VPC 或 docker login）。",
  "≈The model is…": "模型受限：请在 huggingface.co 接受其条款，并在 environments 中设置 HF_TOKEN。",
  "≈The store refused…": "存储拒绝了作业的访问密钥：请检查它对该 bucket 的权限，或作业的角色。",
  "≈The job did not reach…": "作业无法访问某个服务器：请把数据或模型作为输入传入，或让作业能访问该网络。",
  "≈The options in…": "命令中的选项不是程序的选项：请更正命令；超参数在 $PAI_USER_ARGS 中。",
  "≈The module {1} comes with {2}: add…": "模块 {1} 来自 {2}：请添加 requirements=['{2}']，或在 requirements.txt 中加一行。",
  "≈If {1} is a package, add requirements=['{2}']…": "如果 {1} 是软件包，请添加 requirements=['{2}']，或在 requirements.txt 中加一行；如果是你的文件，它必须在 source_dir 中。",
  "≈Newer versions of Python have no {1}:…": "较新的 Python 没有 {1}：请添加提供它的软件包，或使用 Python 较旧的镜像。",
  "≈The module {1} belongs…": "模块 {1} 属于标准库，但此镜像的 Python 中没有它。",
  "≈The installed {1} has no {2}: require…": "已安装的 {1} 没有 {2}：请要求含有它的版本。",
  "≈The job has no {1}s: {2}.": "作业没有{1}：{2}。",
  "≈The job has no {1} for {2}; it has: {3}.": "作业没有 {2} 的{1}；有：{3}。",
  "≈The job has no {1} for {2}; did you mean {3}?": "作业没有 {2} 的{1}；是否指 {3}？",
  "≈A job finds its own files only; its inputs are {1}.": "作业只能看到自己的文件；其输入为 {1}。",
  "≈A job finds its own files only; it has no inputs: {1}.": "作业只能看到自己的文件；它没有输入：{1}。",
  "≈{1} sets $PAI_{2}": "{1} 会设置 $PAI_{2}",
  "≈Use a smaller batch or a larger instance.": "请减小批大小或使用更大的实例。",
  "≈Use a smaller batch, or raise instance_spec.memory.": "请减小批大小，或调大 instance_spec.memory。",
  "≈Check its spelling…": "请检查拼写，或把提供它的软件包加入 requirements；已有的脚本可能使用 Windows 换行符（CRLF）。",
  "≈Start it by its interpreter…": "请用解释器启动它（`python train.py`、`sh run.sh`），或设置其 x 权限位。",
  "≈Free some space there…": "请释放那里的空间，或减少写入。",
  "≈Free some space on that disk…": "请释放该磁盘的空间，或减少写入；/dev/shm 的大小为 instance_spec.shared_memory。",
  "≈Use an image with Python…": "请使用含 Python 和 pip 的镜像，或去掉 requirements。",
  "≈Check names…": "请检查名称、版本和软件包索引。",
  "≈Raise max_run_time…": "如需更多时间，请调大 max_run_time。",
  "≈Submit it again; checkpoints…": "请重新提交；已写入的检查点仍在。",
  "≈Submit it again.": "请重新提交。",
});
