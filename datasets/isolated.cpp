#include "datasets/isolated.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "engine/base/byte_reader.h"
#include "engine/base/error.h"

namespace pare {

namespace {

// An answer is a status (0: text; else an error code) and texts, each behind its length.
void append(std::string& out, const std::string& text) {
  const std::uint64_t length = text.size();
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  out += text;
}

std::string answer_of(const std::function<std::string()>& body) {
  std::string answer(1, '\0');
  try {
    append(answer, body());
  } catch (const Error& error) {
    answer.assign(1, static_cast<char>(error.code()));
    append(answer, error.what());
    append(answer, error.where());
    append(answer, error.hint());
  } catch (const std::exception& error) {
    answer.assign(1, static_cast<char>(ErrorCode::kBadFile));
    append(answer, error.what());
    append(answer, "");
    append(answer, "");
  }
  return answer;
}

[[noreturn]] void run_child(int pipe_end, int seconds, pid_t parent,
                            const std::function<std::string()>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // died before the line above
  const rlimit no_core{0, 0}, time{static_cast<rlim_t>(seconds), static_cast<rlim_t>(seconds) + 1};
  setrlimit(RLIMIT_CORE, &no_core);
  setrlimit(RLIMIT_CPU, &time);
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGINT, SIGTERM, SIGXCPU})
    signal(number, SIG_DFL);
  const std::string answer = answer_of(body);
  std::size_t written = 0;
  while (written < answer.size()) {
    const ssize_t n = write(pipe_end, answer.data() + written, answer.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  _exit(0);  // no destructors and no flushing: the parent's buffers are not ours
}

std::string read_all(int pipe_end, std::size_t limit, bool& too_long) {
  std::string answer;
  char buffer[65536];
  for (;;) {
    const ssize_t n = read(pipe_end, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return answer;
    answer.append(buffer, static_cast<std::size_t>(n));
    if (answer.size() > limit) {
      too_long = true;
      return answer;
    }
  }
}

}  // namespace

std::string run_isolated(const std::string& what, std::size_t limit, int seconds,
                         const std::function<std::string()>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(ErrorCode::kDevice, "no pipe: {}", std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    const int error_number = errno;
    close(ends[0]);
    close(ends[1]);
    fail(ErrorCode::kDevice, "no process to read {} in: {}", what, std::strerror(error_number));
  }
  if (child == 0) run_child(ends[1], seconds, parent, body);
  close(ends[1]);
  bool too_long = false;
  std::string answer = read_all(ends[0], limit + 4096, too_long);
  close(ends[0]);
  if (too_long) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const auto failed = [&](const std::string& why) {
    return make_error(ErrorCode::kBadFile, "reading {} failed: {}", what, why)
        .hint("the file is damaged, or was not written by the library that it claims");
  };
  if (too_long) throw failed(fmt::format("it yields more than {} bytes", limit));
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGXCPU) throw failed(fmt::format("the reader took more than {} s", seconds));
    throw failed(fmt::format("the reader crashed (signal {})", WTERMSIG(status)));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw failed(
        fmt::format("the reader ended with status {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1));

  ByteReader reader(std::as_bytes(std::span(answer.data(), answer.size())));
  const auto code = reader.take_little_endian<std::uint8_t>("the reader's answer");
  const auto text = [&] {
    const auto length = reader.take_little_endian<std::uint64_t>("the reader's answer");
    return std::string(reader.take_text(length, "the reader's answer"));
  };
  if (code == 0) return text();
  Error error(static_cast<ErrorCode>(code), text());
  error.at(text());
  error.hint(text());
  throw error;
}

}  // namespace pare
