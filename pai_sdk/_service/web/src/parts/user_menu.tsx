// Who is signed in, what they may do, and the way out.
import { linkTo } from "../address.ts";
import { signOut } from "../api.ts";
import { can, type About } from "../place.ts";
import { chinese, t } from "../words.ts";
import { Menu } from "./menu.tsx";

export function UserMenu({ user, right, workspaces }: About) {
  const rights = { read: t("may read"), submit: t("may submit jobs"), admin: user ? t("administrator") : t("signed in with the key of the service") };
  return (
    <Menu title={user || "⋯"} label={`${t("Account")} ${user}`}>
      <ul>
        <li>{user && <b>{user}</b>} {rights[right]}</li>
        {user && workspaces.length > 0 && <li class="soft">{t("Workspaces: {names}", { names: workspaces.join(", ") })}</li>}
        {user && <li><a href={linkTo({ q: `owner=${user}` })}>{t("My jobs")}</a></li>}
        {can("admin") && <li><a href={linkTo({ view: "admin" })}>{t("Administration")}</a></li>}
      </ul>
      <button onClick={() => void signOut()}>{t("Sign out")}</button>
    </Menu>
  );
}

chinese({
  "may read": "只读",
  "may submit jobs": "可以提交作业",
  "administrator": "管理员",
  "signed in with the key of the service": "以服务的密钥登录",
  "Account": "帐户",
  "Workspaces: {names}": "工作空间：{names}",
  "My jobs": "我的作业",
  "Administration": "管理",
  "Sign out": "退出登录",
});
