#include "engine/cuda/compile.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/kernel_source.h"

namespace pare::cuda {
namespace {

void write_all(int to, const void* data, std::size_t n) {
  const char* p = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t done = write(to, p, n);
    if (done <= 0) _exit(1);
    p += done;
    n -= static_cast<std::size_t>(done);
  }
}

bool read_all(int from, void* data, std::size_t n) {
  char* p = static_cast<char*>(data);
  while (n > 0) {
    const ssize_t done = read(from, p, n);
    if (done <= 0) return false;
    p += done;
    n -= static_cast<std::size_t>(done);
  }
  return true;
}

Tensor bytes_of(const std::string& text) {
  return Tensor::copy_of(DType::kU8, {static_cast<std::int64_t>(text.size())}, text.data(), text.size());
}

struct Record {
  std::uint64_t index, ok, bytes;
};

// The child's whole life: every text of its share, one record each.
[[noreturn]] void worker(int to, const std::vector<const std::string*>& codes,
                         const std::string& architecture, std::size_t first, std::size_t step) {
  for (std::size_t i = first; i < codes.size(); i += step) {
    Record record{i, 1, 0};
    std::string result;
    try {
      result = compile(*codes[i], architecture);
    } catch (const std::exception& error) {
      result = error.what();
      record.ok = 0;
    }
    record.bytes = result.size();
    write_all(to, &record, sizeof record);
    write_all(to, result.data(), result.size());
  }
  _exit(0);
}

}  // namespace

std::string source_hash(const std::string& code) { return hex(sha256(code)).substr(0, 24); }

std::string compile(const std::string& code, const std::string& architecture) {
  const Nvrtc& n = nvrtc();
  const std::string text = prelude() + code;
  nvrtcProgram program = nullptr;
  check(n.nvrtcCreateProgram(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::string target = "--gpu-architecture=" + architecture;
  const char* const options[] = {target.c_str(), "--std=c++17", "--fmad=true", "-default-device"};
  const nvrtcResult status = n.nvrtcCompileProgram(program, 4, options);
  std::string result;
  std::size_t size = 0;
  if (status != NVRTC_SUCCESS) {
    n.nvrtcGetProgramLogSize(program, &size);
    result.resize(size);
    n.nvrtcGetProgramLog(program, result.data());
    n.nvrtcDestroyProgram(&program);
    fail(ErrorCode::kDevice, "a generated kernel does not compile: {}", result.substr(0, 2000));
  }
  check(n.nvrtcGetCUBINSize(program, &size), "nvrtcGetCUBINSize");
  result.resize(size);
  check(n.nvrtcGetCUBIN(program, result.data()), "nvrtcGetCUBIN");
  n.nvrtcDestroyProgram(&program);
  return result;
}

Compiled compile_all(const std::vector<std::string>& codes, const std::string& architecture, int jobs) {
  Compiled compiled;
  const auto start = std::chrono::steady_clock::now();
  std::vector<const std::string*> unique;
  std::vector<std::string> hashes;
  std::set<std::string> seen;
  for (const std::string& code : codes) {
    const std::string hash = source_hash(code);
    if (!seen.insert(hash).second) continue;
    unique.push_back(&code);
    hashes.push_back(hash);
  }
  if (unique.empty()) return compiled;
  nvrtc();  // opened once, before the children
  const std::size_t count = std::min<std::size_t>(unique.size(), static_cast<std::size_t>(std::max(jobs, 1)));
  std::vector<std::pair<pid_t, int>> children;
  for (std::size_t c = 0; c < count; ++c) {
    int ends[2];
    if (pipe(ends) != 0) fail(ErrorCode::kDevice, "no pipe for a compiler: {}", std::strerror(errno));
    const pid_t child = fork();
    if (child < 0) fail(ErrorCode::kDevice, "no process for a compiler: {}", std::strerror(errno));
    if (child == 0) {
      close(ends[0]);
      worker(ends[1], unique, architecture, c, count);
    }
    close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  std::vector<pollfd> waiting;
  for (const auto& entry : children) waiting.push_back({entry.second, POLLIN, 0});
  std::size_t open = waiting.size();
  while (open > 0) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    for (pollfd& from : waiting) {
      if (from.fd < 0 || from.revents == 0) continue;
      Record record;
      std::string text;
      bool more = read_all(from.fd, &record, sizeof record) && record.index < unique.size() &&
                  record.bytes < (1u << 28);
      if (more) {
        text.resize(record.bytes);
        more = read_all(from.fd, text.data(), text.size());
      }
      if (!more) {
        close(from.fd);
        from.fd = -1;
        --open;
        continue;
      }
      if (record.ok != 0)
        compiled.binaries[hashes[record.index]] = bytes_of(text);
      else
        compiled.failed[hashes[record.index]] = text;
    }
  }
  for (const auto& entry : children) {
    int status = 0;
    waitpid(entry.first, &status, 0);
  }
  for (const std::string& hash : hashes)
    if (compiled.binaries.count(hash) == 0 && compiled.failed.count(hash) == 0)
      compiled.failed[hash] = "the compiler's process ended early";
  compiled.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

}  // namespace pare::cuda
