export function Hparams() {
  return <main />;
}
