// One maker a subcommand; each stands at the end of its cmd_*.cpp.
#pragma once

#include <memory>

#include "cli/command.h"

namespace pare {

std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_inspect();
std::unique_ptr<Command> make_infer();
std::unique_ptr<Command> make_surgeon_simplify();
std::unique_ptr<Command> make_surgeon_externalize();
std::unique_ptr<Command> make_surgeon_convert_opset();
std::unique_ptr<Command> make_surgeon_extract();
std::unique_ptr<Command> make_surgeon_set_shape();
std::unique_ptr<Command> make_surgeon_rename();
std::unique_ptr<Command> make_surgeon_prune();
std::unique_ptr<Command> make_surgeon_convert_precision();
std::unique_ptr<Command> make_surgeon_strip_weights();
std::unique_ptr<Command> make_surgeon_restore_weights();
std::unique_ptr<Command> make_surgeon_diff();
std::unique_ptr<Command> make_convert();
std::unique_ptr<Command> make_calibrate();
std::unique_ptr<Command> make_stats_show();
std::unique_ptr<Command> make_stats_merge();
std::unique_ptr<Command> make_stats_export_trt_cache();
std::unique_ptr<Command> make_quantize();
std::unique_ptr<Command> make_eval();
std::unique_ptr<Command> make_build();
std::unique_ptr<Command> make_bench();
std::unique_ptr<Command> make_verify();
std::unique_ptr<Command> make_generate();
std::unique_ptr<Command> make_report();
std::unique_ptr<Command> make_explain();
std::unique_ptr<Command> make_sensitivity();
std::unique_ptr<Command> make_search();
std::unique_ptr<Command> make_bisect();
std::unique_ptr<Command> make_compare();
std::unique_ptr<Command> make_recipe_list();
std::unique_ptr<Command> make_recipe_show();
std::unique_ptr<Command> make_recipe_check();
std::unique_ptr<Command> make_recipe_schema();
std::unique_ptr<Command> make_recipe_init();
std::unique_ptr<Command> make_ops();
std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_cache_show();
std::unique_ptr<Command> make_cache_clean();
std::unique_ptr<Command> make_completion();
std::unique_ptr<Command> make_man();
std::unique_ptr<Command> make_reference();

}  // namespace pare
