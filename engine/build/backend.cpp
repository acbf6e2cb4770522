#include "engine/build/backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <string_view>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"

namespace pare {
namespace {

// The folder of the program, or of the shared library that this code is in.
std::string own_folder() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  std::string text(path, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  Dl_info library;
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &library) != 0 && library.dli_fname != nullptr) {
    const std::string_view name = library.dli_fname;
    if (name.find(".so") != std::string_view::npos) text = name;
  }
  const std::size_t slash = text.rfind('/');
  return slash == std::string::npos ? "." : text.substr(0, slash);
}

std::string module_path() {
  const char* given = std::getenv("PARE_CUDA_MODULE");
  if (given != nullptr) return given;
  const std::string folder = own_folder();
  for (const char* place : {"", "/pare", "/../lib", "/../lib/pare", "/../lib/x86_64-linux-gnu/pare"}) {
    std::string path = folder + place + "/pare_cuda.so";
    if (path_exists(path)) return path;
  }
  return "";
}

struct Opened {
  BackendRegistry registry;
  std::string why_not;
};

Opened open_module() {
  Opened opened;
  const std::string path = module_path();
  if (path.empty() || !path_exists(path)) {
    opened.why_not =
        path.empty()
            ? "the GPU module pare_cuda.so is neither beside the program nor in ../lib or ../lib/pare"
            : "the GPU module '" + path + "' does not exist";
    return opened;
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    opened.why_not = fmt::format("the GPU module cannot be opened: {}", dlerror());
    return opened;
  }
  using Register = int (*)(BackendRegistry&);
  const auto enter = reinterpret_cast<Register>(dlsym(handle, "pare_cuda_register"));
  if (enter == nullptr) {
    opened.why_not = "'" + path + "' is no GPU module of pare: it has no pare_cuda_register";
    return opened;
  }
  const int abi = enter(opened.registry);
  if (abi != kBackendAbi || opened.registry.backend == nullptr) {
    opened.registry.backend.release();  // made by code of another layout: not ours to destroy
    opened.why_not =
        fmt::format("the GPU module is of another version of pare (ABI {}, not {})", abi, kBackendAbi);
  }
  return opened;
}

Opened& opened_module() {
  static Opened* opened =
      new Opened(open_module());  // never closed: the driver has threads of its own at exit
  return *opened;
}

}  // namespace

EngineBackend* try_cuda_backend(std::string& why_not) {
  Opened& opened = opened_module();
  why_not = opened.why_not;
  return opened.registry.backend.get();
}

EngineBackend& cuda_backend() {
  std::string why;
  EngineBackend* backend = try_cuda_backend(why);
  if (backend == nullptr)
    throw make_error(ErrorCode::kDevice, "{}", why).hint("`pare doctor` says what is missing");
  return *backend;
}

std::vector<std::string> portable_architectures(const EnginePlan& plan) {
  std::set<std::string> names;
  for (const auto& entry : plan.binaries) {
    const std::size_t slash = entry.first.find('/');
    if (slash != std::string::npos) names.insert(entry.first.substr(0, slash));
  }
  return {names.begin(), names.end()};
}

std::string portable_architecture(const EnginePlan& plan, const std::string& device) {
  const auto number = [](const std::string& text) {  // sm_103 -> 103, -1 with a letter behind
    if (text.rfind("sm_", 0) != 0 || text.size() < 5 || text.size() > 7 ||
        text.find_first_not_of("0123456789", 3) != std::string::npos)
      return -1;
    return std::stoi(text.substr(3));
  };
  std::string plain = device;
  while (!plain.empty() && std::isalpha(static_cast<unsigned char>(plain.back())) != 0) plain.pop_back();
  std::string best;
  for (const std::string& name : portable_architectures(plan)) {
    if (name == device) return name;
    const int n = number(name), d = number(plain);
    if (n >= 0 && n / 10 == d / 10 && n <= d && (best.empty() || n > number(best))) best = name;
  }
  return best;
}

namespace {

std::string hex_of_bytes(const Tensor& code) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(static_cast<std::size_t>(code.bytes()) * 2);
  for (const std::byte b : code.byte_span()) {
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

Tensor bytes_of_hex(const std::string& text, const std::string& path) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw make_error(ErrorCode::kBadFile, "the timing cache holds a kernel that is none")
        .at(path)
        .hint("delete it");
  };
  if (text.empty() || text.size() % 2 != 0) digit('?');
  Tensor code = Tensor::allocate(DType::kU8, {static_cast<std::int64_t>(text.size() / 2)});
  for (std::size_t i = 0; i < text.size(); i += 2)
    code.mut<std::uint8_t>()[i / 2] = static_cast<std::uint8_t>(digit(text[i]) * 16 + digit(text[i + 1]));
  return code;
}

}  // namespace

const std::vector<TimingCache::Entry>* TimingCache::find(const std::string& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

const Tensor* TimingCache::kernel(const std::string& key) const {
  const auto it = kernels_.find(key);
  return it == kernels_.end() ? nullptr : &it->second;
}

void TimingCache::put(const std::string& key, std::vector<Entry> entries) {
  entries_[key] = std::move(entries);
}

TimingCache TimingCache::read(const std::string& path) {
  TimingCache cache;
  if (!path_exists(path)) return cache;
  const Json document = read_json_file(path);
  if (json_int(document, "version", path) != 1)
    throw make_error(ErrorCode::kBadFile, "a timing cache of another version")
        .at(path)
        .hint("remove the file: it is filled anew");
  for (const auto& [key, list] : json_object(document, "layers", path).items()) {
    std::vector<Entry> entries;
    for (const Json& row : list) {
      Entry entry;
      entry.tactic = json_string(row, "tactic", path);
      entry.microseconds = json_double(row, "us", path);
      entries.push_back(std::move(entry));
    }
    cache.put(key, std::move(entries));
  }
  if (!document.contains("kernels")) return cache;
  for (const auto& [key, text] : json_object(document, "kernels", path).items())
    cache.put_kernel(key, bytes_of_hex(text.is_string() ? text.get<std::string>() : "?", path));
  return cache;
}

void TimingCache::write(const std::string& path) const {
  Json layers = Json::object();
  for (const auto& [key, entries] : entries_) {
    Json list = Json::array();
    for (const Entry& entry : entries)
      list.push_back({{"tactic", entry.tactic}, {"us", json_number(entry.microseconds)}});
    layers[key] = std::move(list);
  }
  Json kernels = Json::object();
  for (const auto& [key, code] : kernels_) kernels[key] = hex_of_bytes(code);
  write_file_atomically(
      path, dump({{"version", 1}, {"layers", std::move(layers)}, {"kernels", std::move(kernels)}}, 1) + "\n");
}

}  // namespace pare
