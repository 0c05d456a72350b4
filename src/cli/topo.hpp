// SPDX-License-Identifier: Apache-2.0
/// `outboard topo`: a machine, its GPUs and limits, and what the engine makes of them.
#pragma once

#include <string>

#include "inspect/host_report.hpp"

namespace CLI {
class App;
}

namespace outboard::cli {

struct TopoWords {
  inspect::Question question;
  int reserve_cores = -1;  ///< below 0: as the engine chooses
  std::string json;        ///< a file, "-" for standard output, "" for none
};

/// @return the subcommand.
CLI::App* add_topo(CLI::App& app, TopoWords& words);
/// Prints. @return the exit status, 0. @throws UsageError, Error{invalid_config}.
int run(const TopoWords& words);

/// At most 80 columns wide but for names and paths that are longer.
[[nodiscard]] std::string topo_text(const inspect::HostReport& report);
/// A box for each node: its cores, those that compute marked, and the GPUs near it; below them
/// whose the buckets are.
[[nodiscard]] std::string topo_picture(const inspect::HostReport& report);
[[nodiscard]] std::string topo_json(const inspect::HostReport& report);

/// Words of `text` on lines of at most 80 columns. The first line starts behind `indent` columns
/// that are there already, the others with as many blanks. Ends with a newline.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indent);
/// "0-7,16-23".
[[nodiscard]] std::string cpu_list(const std::vector<std::uint32_t>& cpus);

}  // namespace outboard::cli
