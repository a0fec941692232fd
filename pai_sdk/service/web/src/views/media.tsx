export function Media() {
  return <main />;
}
