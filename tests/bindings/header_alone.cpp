#include <hindcast/hindcast_c.h>

int header_is_cpp() { return HINDCAST_OK; }
