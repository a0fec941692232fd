declare module "*.css";

declare module "all-chinese-texts" {
  const texts: Readonly<Record<string, string>>;
  export default texts;
}
