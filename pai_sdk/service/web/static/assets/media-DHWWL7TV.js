import{f as a,g as b}from"./chunk-5BHSZXQ2.js";import"./chunk-SU27WKGI.js";import"./chunk-6QKPCH3I.js";import"./chunk-MKCYLRFU.js";import"./chunk-LLDIWCOF.js";export{a as Media,b as MediaOf};
