// What a browser sees that is not signed in: how to get a link.
import { Copyable, Notice } from "../parts/basics.tsx";
import { field } from "../address.ts";
import { linkCommand } from "../api.ts";
import { chinese, t } from "../words.ts";

const run = field("run");
const PLAIN_ID = /^\w[\w./-]*$/; // anybody can make a link: nothing else of it belongs into a shell

export function SignIn({ refused }: { refused: string }) {
  return (
    <main class="sign-in">
      <h1>{t("Sign in")}</h1>
      {refused && <Notice kind="bad">{refused}</Notice>}
      <p>{t("Run this on the machine of the service, and open the link that it prints:")}</p>
      <Copyable text={`${linkCommand.value} --open${PLAIN_ID.test(run.value) ? ` --run ${run.value}` : ""}`} />
      <p class="soft">{t("A link works once, within a minute. This page goes on by itself when another tab has signed in.")}</p>
    </main>
  );
}

chinese({
  "Sign in": "登录",
  "Run this on the machine of the service, and open the link that it prints:": "在运行服务的机器上执行此命令，并打开它打印的链接：",
  "A link works once, within a minute. This page goes on by itself when another tab has signed in.": "链接一分钟内有效，只能使用一次。其他标签页登录后，本页会自动继续。",
});
