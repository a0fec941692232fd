// What a list without runs shows: how to make a first one.
import { Copyable } from "../../parts/basics.tsx";
import { about } from "../../place.ts";
import { chinese, t } from "../../words.ts";

function firstJob(session: string): string {
  return `from pai_sdk import Processor, Session

processor = Processor("python:3.11", "echo hello",
                      instance_type="ecs.c6.large", session=${session})
processor.run()`;
}

function firstRun(folder: string): string {
  return `from pai_sdk import ReportSession

with ReportSession(${JSON.stringify(`${folder.replace(/\/$/, "")}/first`)}) as training:
    for step in range(100):
        training.report({"loss": 1 / (1 + step)}, step)`;
}

export function Empty({ isLoading }: { isLoading: boolean }) {
  if (isLoading) return <main><p class="soft" role="status">{t("The {runs} are being read…")}</p></main>;
  const isService = about.value?.kind === "service";
  return (
    <main class="empty">
      <h1>{isService ? t("No jobs yet") : t("No runs yet")}</h1>
      <p>{isService ? t("These lines start a first job; it appears here by itself:") : t("A run is a folder with event files. These lines write one; it appears here by itself:")}</p>
      <Copyable text={isService ? firstJob(about.value?.session ?? "") : firstRun(about.value?.place ?? "runs")} />
      <p class="soft">
        {isService ? t("Or run `pai-sdk demo`, which trains a small model in two jobs.") : t("Event files of TensorBoard's SummaryWriter in this folder are shown as well.")}
      </p>
    </main>
  );
}

chinese({
  "The {runs} are being read…": "正在读取{run}…",
  "No jobs yet": "还没有作业",
  "No runs yet": "还没有运行",
  "These lines start a first job; it appears here by itself:": "以下代码启动第一个作业，它会自动出现在这里：",
  "A run is a folder with event files. These lines write one; it appears here by itself:": "运行是含有事件文件的文件夹。以下代码写入一个运行，它会自动出现在这里：",
  "Or run `pai-sdk demo`, which trains a small model in two jobs.": "或者执行 `pai-sdk demo`，它用两个作业训练一个小模型。",
  "Event files of TensorBoard's SummaryWriter in this folder are shown as well.": "此文件夹中 TensorBoard SummaryWriter 写入的事件文件也会显示。",
});
