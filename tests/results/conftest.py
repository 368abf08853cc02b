from made_up_results import config, copied, finished, folder, paper_config, paper_results, results
