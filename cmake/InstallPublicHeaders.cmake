# Run by `cmake --install`: copies engine/hindcast.h, engine/aot/aot.h, engine/saved/saved.h, engine/optim/optim.h, engine/train/train_step.h, capture/graph/graph.h and the headers of ours that they include, directly or not, to
# include/hindcast. So a header is public exactly if a user's compiler reads it. Expects source_folder, staging_folder and
# destination.
#
# In the tree, includes are relative to its root ("engine/options.h"), where a user may have a folder of the same name; in
# what is installed they start with hindcast/. The rewritten headers are staged, so that their times change only with their text.

cmake_policy(VERSION 3.25)

function(install_text text header)
  set(staged "${staging_folder}/${header}")
  set(before "")
  if(EXISTS "${staged}")
    file(READ "${staged}" before)
  endif()
  if(NOT text STREQUAL before)
    file(WRITE "${staged}" "${text}")
  endif()
  get_filename_component(folder "${header}" DIRECTORY)
  file(INSTALL "${staged}" DESTINATION "${destination}/${folder}")
endfunction()

set(pending engine/hindcast.h engine/aot/aot.h engine/torchscript/jit.h engine/saved/saved.h engine/optim/optim.h engine/train/train_step.h capture/graph/graph.h)
set(public)
while(pending)
  list(POP_FRONT pending header)
  if(header IN_LIST public)
    continue()
  endif()
  list(APPEND public "${header}")

  file(STRINGS "${source_folder}/${header}" includes REGEX "^#include \"")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" include "${include}")
    if(NOT EXISTS "${source_folder}/${include}")
      message(FATAL_ERROR "${header} includes \"${include}\", which is not a path from the root of hindcast's source tree; "
                          "a public header's includes are.")
    endif()
    list(APPEND pending "${include}")
  endforeach()

  file(READ "${source_folder}/${header}" text)
  string(REGEX REPLACE "\n#include \"([^\"]+)\"" "\n#include <hindcast/\\1>" text "${text}")
  install_text("${text}" "${header}")
endwhile()

install_text("#pragma once\n#include <hindcast/engine/hindcast.h>\n" hindcast.h)
install_text("#pragma once\n#include <hindcast/engine/aot/aot.h>\n" aot.h)
install_text("#pragma once\n#include <hindcast/engine/torchscript/jit.h>\n" jit.h)
install_text("#pragma once\n#include <hindcast/engine/saved/saved.h>\n" checkpoint.h)
install_text("#pragma once\n#include <hindcast/engine/optim/optim.h>\n" optim.h)
install_text("#pragma once\n#include <hindcast/engine/train/train_step.h>\n" train_step.h)
install_text("#pragma once\n#include <hindcast/capture/graph/graph.h>\n" graph.h)
# Includes none of ours, so that a binding may take it alone.
file(INSTALL "${source_folder}/c_api/hindcast_c.h" DESTINATION "${destination}")
