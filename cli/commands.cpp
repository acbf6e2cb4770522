#include "cli/commands.h"

namespace pare {

void declare_common(Args& args, CommonOptions& common) {
  args.common()
      .option("--device", "DEVICE", common.device, "where to run: auto, cpu, cuda or cuda:N", "build.device")
      .flag("--json", common.json, "one JSON document on stdout, nothing else (docs/json.md)")
      .flag("--quiet", common.quiet, "no progress and no messages")
      .option("--log-level", "LEVEL", common.log_level, "the least that messages are about")
      .one_of({"error", "warn", "info", "debug"})
      .option("--threads", "N", common.threads, "results do not depend on it (default: what the machine has)")
      .option("--seed", "N", common.seed, "seed of everything random (default: the recipe's, else 0)", "seed")
      .option("--isa", "CLASS", common.isa, "a lower instruction class (default: the processor's)")
      .one_of({"scalar", "avx2", "avx512", "avx512_vnni", "amx"})
      .flag("-h,--help", common.help, "help");
}

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
  list.push_back(make_cache_show());
  list.push_back(make_cache_clean());
  list.push_back(make_completion());
  list.push_back(make_man());
  list.push_back(make_reference());
  return list;
}

}  // namespace pare
