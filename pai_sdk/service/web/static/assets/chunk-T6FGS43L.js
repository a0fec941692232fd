import{m as e}from"./chunk-LLDIWCOF.js";var t=e(void 0);function a(n){return t.value?.can.includes(n)??!1}export{t as a,a as b};
