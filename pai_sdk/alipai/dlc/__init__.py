"""Scripts and programs that submit DLC jobs, shown as estimators."""
