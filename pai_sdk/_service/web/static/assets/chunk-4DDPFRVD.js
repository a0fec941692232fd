import{m as e}from"./chunk-LLDIWCOF.js";var t=e(void 0);function r(n){return t.value?.can.includes(n)??!1}export{t as a,r as b};
