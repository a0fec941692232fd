// All Chinese texts; loaded when the page is shown in Chinese. The build collects them from the files that use them.
import texts from "all-chinese-texts";
import { chinese } from "./words.ts";

chinese(texts);
