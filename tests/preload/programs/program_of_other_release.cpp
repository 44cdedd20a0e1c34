extern "C" bool calls_its_engine();

int main() { return calls_its_engine() ? 0 : 1; }
