#include <cstdlib>

#include "cli/commands.h"
#include "cli/version.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "engine/build/backend.h"
#include "engine/ops/registry.h"
#include "eval/report_render.h"

namespace pare {
namespace {

struct Part {
  std::string name;
  bool present;
  std::string found, remedy;
};

class Doctor final : public Command {
 public:
  const char* name() const override { return "doctor"; }
  const char* what() const override { return "what this machine and build can do, and what is missing"; }

  void declare(Args& args) override {
    args.words("--require", "PART", required_,
               "exit 5 when this part is missing: cpu, vnni, amx, cuda, nvrtc, cublaslt, cudnn, temporary")
        .example("pare doctor --require cuda");
  }

  int run(Context& context) override {
    const std::vector<Part> parts = look(context);
    Json list = Json::array();
    context.print(version_text());
    for (const Part& part : parts) {
      context.print(fmt::format("{} {:<10} {}", part.present ? "ok     " : "missing", part.name, part.found));
      if (!part.present && !part.remedy.empty()) context.print("                   " + part.remedy);
      list.push_back(
          {{"name", part.name}, {"present", part.present}, {"found", part.found}, {"remedy", part.remedy}});
    }
    context.document()["parts"] = std::move(list);
    require(parts);
    return 0;
  }

 private:
  static std::vector<Part> look(Context& context) {
    std::vector<Part> parts;
    const auto add = [&](const char* part, bool present, std::string found, std::string remedy) {
      Part p;
      p.name = part;
      p.present = present;
      p.found = std::move(found);
      p.remedy = std::move(remedy);
      parts.push_back(std::move(p));
    };
    add("cpu", true,
        fmt::format("{} threads, instruction class {}, {} kernels", context.pool().threads(),
                    pare::name(best_isa()), cpu_registry().kernels().size()),
        "");
    add("memory", true, bytes_text(static_cast<double>(total_memory_bytes())), "");
    add("vnni", best_isa() >= Isa::kAvx512Vnni, "dot products of 8 bit integers",
        "integer kernels run by AVX2 or AVX-512 instead: the same results, slower");
    add("amx", best_isa() >= Isa::kAmx, "tiles of 8 bit integers", "the same results without it");
    std::string why;
    EngineBackend* backend = try_cuda_backend(why);
    if (backend == nullptr) {
      add("cuda", false, why,
          "scripts/build on a machine with the headers of the CUDA Toolkit 13 and cuDNN 9 makes "
          "lib/pare_cuda.so");
    } else {
      const std::vector<BackendPart> found = backend->parts();
      add("cuda", found[0].present,
          found[0].present ? found[0].found : "the GPU module is there, but " + found[0].found,
          found[0].remedy);
      for (std::size_t i = 1; i < found.size(); ++i)
        add(found[i].name.c_str(), found[i].present, found[i].found, found[i].remedy);
    }
    const char* folder = std::getenv("TMPDIR");
    const std::string temporary = folder == nullptr ? "/tmp" : folder;
    add("temporary", is_directory(temporary), temporary, "set TMPDIR to a folder that can be written");
    return parts;
  }

  void require(const std::vector<Part>& parts) const {
    for (const std::string& wanted : required_) {
      std::vector<const char*> names;
      const Part* found = nullptr;
      for (const Part& part : parts) {
        names.push_back(part.name.c_str());
        if (part.name == wanted) found = &part;
      }
      if (found == nullptr) {
        const std::string near = nearest_word(wanted, names.data(), names.size());
        throw make_error(ErrorCode::kUsage, "there is no part '{}'", wanted)
            .at("--require")
            .hint(near.empty() ? "`pare doctor` lists them" : fmt::format("did you mean '{}'?", near));
      }
      if (!found->present)
        throw make_error(ErrorCode::kDevice, "{} is missing: {}", wanted, found->found).hint(found->remedy);
    }
  }

  std::vector<std::string> required_;
};

}  // namespace

std::unique_ptr<Command> make_doctor() { return std::make_unique<Doctor>(); }

}  // namespace pare
