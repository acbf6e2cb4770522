#include "cli/commands.h"

namespace pare {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> list;
  list.push_back(make_run());
  list.push_back(make_inspect());
  list.push_back(make_infer());
  list.push_back(make_surgeon_simplify());
  list.push_back(make_surgeon_externalize());
  list.push_back(make_surgeon_convert_opset());
  list.push_back(make_surgeon_extract());
  list.push_back(make_surgeon_set_shape());
  list.push_back(make_surgeon_rename());
  list.push_back(make_surgeon_prune());
  list.push_back(make_surgeon_convert_precision());
  list.push_back(make_surgeon_strip_weights());
  list.push_back(make_surgeon_restore_weights());
  list.push_back(make_surgeon_diff());
  list.push_back(make_convert());
  list.push_back(make_calibrate());
  list.push_back(make_stats_show());
  list.push_back(make_stats_merge());
  list.push_back(make_stats_export_trt_cache());
  list.push_back(make_quantize());
  list.push_back(make_eval());
  list.push_back(make_build());
  list.push_back(make_bench());
  list.push_back(make_verify());
  list.push_back(make_sensitivity());
  list.push_back(make_search());
  list.push_back(make_bisect());
  list.push_back(make_explain());
  list.push_back(make_generate());
  list.push_back(make_report());
  list.push_back(make_compare());
  list.push_back(make_recipe_list());
  list.push_back(make_recipe_show());
  list.push_back(make_recipe_check());
  list.push_back(make_recipe_schema());
  list.push_back(make_recipe_init());
  list.push_back(make_ops());
  list.push_back(make_doctor());
  return list;
}

}  // namespace pare
