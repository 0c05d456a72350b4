// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

namespace text::test {
namespace {

[[noreturn]] void become(const Command& command, int out, int err) {
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const std::string& entry : command.environment) putenv(const_cast<char*>(entry.c_str()));
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

/// Appends what is there to read. @return false at the end.
bool drain(int file, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t got = read(file, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0;
}

void collect(const Command& command, pid_t child, int out, int err, Finished& finished) {
  bool interrupted = command.interrupt_after.empty();
  std::array<pollfd, 2> files{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    poll(files.data(), files.size(), -1);
    if (files[0].revents != 0 && !drain(out, finished.out)) files[0].fd = -1;
    if (files[1].revents != 0 && !drain(err, finished.err)) files[1].fd = -1;
    if (!interrupted && finished.out.find(command.interrupt_after) != std::string::npos) {
      kill(child, SIGINT);
      interrupted = true;
    }
  }
}

}  // namespace

Finished run(const Command& command) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) become(command, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  Finished finished;
  collect(command, child, out[0], err[0], finished);
  close(out[0]);
  close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

}  // namespace text::test
