// SPDX-License-Identifier: Apache-2.0
/// The control groups that this process is in, as folders.
#pragma once

#include <functional>
#include <string>

namespace outboard::topology {

enum class CgroupVersion { v1, v2 };
using GroupVisitor = std::function<void(CgroupVersion, const std::string& folder)>;

/// Visits the folder of this process's group and of all its parents, up to the mount's own top, for
/// cgroup v2 and for the v1 hierarchy of `controller` ("cpu", "memory"). Some may not exist: in a
/// container the group's name may be the host's, and the mount's top some group of the host's: then
/// what is below that one is visited, or only the top. /proc/self/mountinfo tells where hierarchies
/// are mounted and which group is on top; without it, /sys/fs/cgroup and "/". Paths are looked up
/// below `root` ("" is the running system).
void visit_groups(const std::string& root, const std::string& controller,
                  const GroupVisitor& visit);

}  // namespace outboard::topology
