#include <algorithm>

#include "cli/cache_folder.h"
#include "cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"

namespace pare {
namespace {

std::string age_text(double days) {
  return days < 1 ? fmt::format("{:.0f} hours", days * 24) : fmt::format("{:.0f} days", days);
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const CacheKind& kind : cache_kinds()) names.emplace_back(kind.name);
  return names;
}

class CacheShow final : public Command {
 public:
  const char* name() const override { return "cache show"; }
  const char* what() const override { return "what is kept between runs: sizes, ages, kinds"; }
  void declare(Args& args) override { args.example("pare cache show"); }

  int run(Context& context) override {
    const std::string folder = cache_folder();
    std::uint64_t bytes = 0;
    Json list = Json::array();
    const std::vector<CacheEntry> entries = list_cache(folder);
    for (const CacheEntry& e : entries) {
      bytes += e.bytes;
      context.print(fmt::format("{:>10} {:>9}  {:<10} {:<32} {}", bytes_text(static_cast<double>(e.bytes)),
                                age_text(e.age_days), e.kind, e.name, e.what));
      list.push_back({{"name", e.name},
                      {"kind", e.kind},
                      {"what", e.what},
                      {"bytes", e.bytes},
                      {"age_days", e.age_days}});
    }
    context.print(
        fmt::format("{}: {} in {} entries", folder, bytes_text(static_cast<double>(bytes)), entries.size()));
    Json& json = context.document();
    json["folder"] = folder;
    json["bytes"] = bytes;
    json["entries"] = std::move(list);
    return 0;
  }
};

class CacheClean final : public Command {
 public:
  const char* name() const override { return "cache clean"; }
  const char* what() const override { return "remove what is kept between runs, by kind and age"; }

  void declare(Args& args) override {
    args.words("--kind", "KIND", kinds_, "only these")
        .one_of(kind_names())
        .option("--older-than", "DAYS", days_, "only what was last written so many days ago")
        .flag("--all", all_, "every kind and age")
        .flag("--dry-run", dry_, "only say what would be removed")
        .example("pare cache clean --kind download --kind log")
        .example("pare cache clean --older-than 30 --dry-run");
  }

  int run(Context& context) override {
    if (days_ < 0 && days_ != kAnyAge)
      throw make_error(ErrorCode::kUsage, "--older-than {} makes no sense", days_).hint("days, 0 or more");
    if (!all_ && kinds_.empty() && days_ == kAnyAge)
      throw make_error(ErrorCode::kUsage, "nothing was named that is to be removed")
          .at("pare cache clean")
          .hint("--kind KIND, --older-than DAYS, or --all; `pare cache show` lists what is there");
    const std::string folder = cache_folder();
    std::uint64_t bytes = 0;
    Json removed = Json::array(), kept = Json::array();
    for (const CacheEntry& e : list_cache(folder)) {
      const bool known = e.kind != "unknown" && e.kind != "lock";
      const bool asked = (kinds_.empty() || std::count(kinds_.begin(), kinds_.end(), e.kind) > 0) &&
                         (days_ == kAnyAge || e.age_days >= days_);
      if (!known || !asked) {
        if (e.kind == "unknown") kept.push_back({{"name", e.name}, {"why", "not known"}});
        continue;
      }
      if (const std::string why = dry_ ? "" : remove_cache_entry(folder, e); !why.empty()) {
        context.warn(fmt::format("'{}' stays: {}", e.name, why));
        kept.push_back({{"name", e.name}, {"why", why}});
        continue;
      }
      bytes += e.bytes;
      context.print(fmt::format("{} {:<10} {} ({})", dry_ ? "would remove" : "removed", e.kind, e.name,
                                bytes_text(static_cast<double>(e.bytes))));
      removed.push_back({{"name", e.name}, {"kind", e.kind}, {"bytes", e.bytes}});
    }
    context.print(fmt::format("{}: {} {}", folder, bytes_text(static_cast<double>(bytes)),
                              dry_ ? "would be free" : "are free"));
    Json& json = context.document();
    json["folder"] = folder;
    json["dry_run"] = dry_;
    json["freed_bytes"] = bytes;
    json["removed"] = std::move(removed);
    json["kept"] = std::move(kept);
    return 0;
  }

 private:
  static constexpr double kAnyAge = -1;
  std::vector<std::string> kinds_;
  double days_ = kAnyAge;
  bool all_ = false, dry_ = false;
};

}  // namespace

std::unique_ptr<Command> make_cache_show() { return std::make_unique<CacheShow>(); }
std::unique_ptr<Command> make_cache_clean() { return std::make_unique<CacheClean>(); }

}  // namespace pare
